"""Small classes of words by language: those with which sentences begin, those before ordinals, and abbreviations.

They decide where no corpus does, see `full_stops`.
"""

from __future__ import annotations

from functools import cache

from dragoman.directions import base_code

# The words before an ordinal in languages that write ordinals with a full stop. None: any word (verb-final
# languages).
_GERMANIC = "den det de i på"
_SLAVIC = "v ve vo u na z ze s sa do od iz po k ke"
_BEFORE_ORDINALS: dict[str, str | None] = {
    "de": "der die das den dem des im am vom zum zur beim ins ans dieser diese dieses diesem diesen jeder jede jedes "
    "jedem jeden sein seine seinem seinen seiner ihr ihre ihrem ihren ihrer mein meine meinem meinen meiner unser "
    "unsere unserem unseren unserer",
    "lb": "de den d' dem der am vum zum",
    **dict.fromkeys(("da", "nb", "nn", "no", "sv", "is", "fo"), _GERMANIC),
    **dict.fromkeys(("cs", "sk", "hr", "sr", "bs", "sl"), _SLAVIC),
    "pl": "w we na z ze do od po",
    "hu": "a az",
    "tr": None,
    "az": None,
}
# Abbreviations that do not end a sentence before a name, a number or a small letter: titles, kinds of streets,
# references, and those that introduce something.
_ABBREVIATIONS = {
    "en": "adm approx assoc brig capt cdr ch col dept dr excl ext fig figs fr ft gen gov hon incl lt maj mr mrs ms "
    "mt pres prof rep rev sec sen sgt st supt univ vol vols",
    "de": "abb abs abt adm anm aufl ausg bspw bzgl ca dipl dr ehem einschl entspr evtl exkl fa fam fr frl gebr gen "
    "ggf ggü hbf hl hr ing inh inkl insp jr kath lt mio mrd nachm pfr pl prof präs sog sr st stellv str tel urspr "
    "verf vorm wg zzgl zzt",
    "fr": "adj adm approx arch art av bd boul cdt chap coll dr env fig gén hab ing lt mgr min mlle mlles mm mme "
    "mmes pr prof prés rte réf sgt st ste tél vol vve éd",
    "it": "arch art artt avv cap capp cav col dir dott dr egr es fig gen gent geom ing ispett mons pag pagg pp prof "
    "sen sig spett ss tel vol",
    "es": "adm alm aprox arq art av avda bda cap capt cnel dir dn dpto dr dra dña edif ej esq excmo fig fr gral hna "
    "hno ing lic mons núm pbro pje prof profa pza pág págs párr sgto sr sra srta sta sto tel teléf tte ud uds vol",
    "pt": "adm alm aprox art av cap cel cons dep dir dr dra dto ed eng engª esq exma exmo fig gen lgo min mons núm "
    "pe pres prof profa pág págs pça r sarg sen sr sra sta sto séc tel trav vol",
    "nl": "adm arch bijv blz burg ca dhr dr drs evt excl fa fam gebr gen incl ing ir jhr kap kol lt mej mevr mgr mr "
    "mw nr ong prof resp sgt st tel vgl zgn",
    "sv": "adm alt avd bl ca cand civ dir doc dr dvs enl exkl fig fil forts fr gen gm hr ing inkl jfr jur kand kap "
    "kh kl lekt lic löjtn mag maj milj nr orig prof st tekn tel tfn tr ung uppl utg vol övers",
    "pl": "abp adm al ass bp br bł doc dot dr dyr fa gen gm godz im insp inż kard kpr kpt ks lek mec mgr mjr mld "
    "mln np ok os pkt pl por pow poz ppłk prez prof płk red rozdz rys sierż st tab tel tj tys tzn tzw ul wg woj ww "
    "zob św",
    "cs": "akad arch bc biskup cca dir doc dr gen ing insp judr kap kard mgr mjr mudr např npor nábř nám obr odst "
    "okr p phdr plk popř por prap prof příp resp rndr roč stol str sv tab tel tj tzn tzv tř ul čet čl čtv",
    "ru": "адм акад англ бул бульв вкл ген гл гор гос губ дер доц изд им инж кап кн корп мин млн млрд наб напр нем "
    "обл оз пер пл полк пос пр просп проф р-н разд рис с св см ст стр табл тел тыс ул чел ш экз",
    "tr": "alb apt av bkz bul bulv cad doç dr ecz ed fak gen gn hst hz inş kor kur mad mah mim mrş müh opr ord org "
    "ort prof sn sok tel uzm yay yd yrd yy yüz çev örn öğr ünv şb şti",
    "el": "αγ αι αρ αρχ βλ γεν δηλ δικ δισ δρ εικ εκατ εφ κα καθ κεφ κος κυρ λεωφ μητρ μτφ ναυ οδ οσ πίν παν πλ "
    "πρωθ σ σελ στρ τηλ τόμ υπ χιλ",
}
# Pronouns, articles, conjunctions and adverbs with which sentences begin.
_FUNCTION_WORDS = {
    "en": "i you he she it we they my your his her its our their the a an this that these those there then and but so "
    "if when where who what why how in on at for not no yes now here please is are was were do does did have has had "
    "can could will would shall should may might must let about after all also although always another any as because "
    "before both by even every everyone everybody finally first from however later many maybe more most never nobody "
    "nothing of often once one only or other perhaps several since some someone sometimes soon still such thank "
    "thanks to today tomorrow until very well while with without yesterday yet come go get look take tell",
    "de": "ich du er sie es wir ihr mein meine dein deine sein seine ihre unser unsere euer der die das den dem ein "
    "eine kein keine dies diese dieser dieses und aber oder denn doch da dann danach dort hier jetzt heute morgen so "
    "wenn als wer was wo wann warum wie wir nach auf mit von ja nein nun auch alle bitte ist sind war man es",
    "fr": "je j tu il elle on nous vous ils elles mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs le "
    "la les l un une des ce c cet cette ces et mais ou donc car puis alors ensuite où quand comment pourquoi qui que "
    "dans en à après ici oui non",
    "it": "io tu lui lei noi voi loro mio mia miei tuo tua suo sua nostro nostra il lo la i gli le l un uno una questo "
    "questa quello quella e ed ma o poi allora dove quando come perché chi che cosa in a dopo qui sì no non è si ci",
    "es": "yo tú él ella usted nosotros nosotras ustedes ellos ellas mi mis tu tus su sus nuestro nuestra el la los "
    "las un una este esta esto ese esa eso y e pero o luego entonces después donde cuando cómo quién qué en a aquí sí "
    "no se me te le lo es",
    "pt": "eu tu ele ela você nós vocês eles elas meu minha meus minhas teu tua seu sua nosso nossa o a os as um uma "
    "este esta isto esse essa isso e mas ou depois então onde quando como quem que em no na aqui sim não é se",
    "nl": "ik jij je hij zij ze u wij we jullie mijn jouw zijn haar ons onze hun de het een dit dat deze die en maar "
    "of dus want toen dan daarna daar hier nu waar wanneer hoe wie wat waarom in op ja nee niet er is",
    "sv": "jag du han hon den det vi ni de min mitt mina din ditt hans hennes vår vårt er deras en ett detta denna "
    "dessa och men eller så då sedan där här nu var när hur vem vad varför i på ja nej inte är",
    "pl": "ja ty on ona ono my wy oni one mój moja moje twój twoja jego jej nasz nasza ich ten ta to te ci i a ale "
    "lub więc potem wtedy tam tu teraz gdzie kiedy jak kto co dlaczego w na po tak nie jest był była czy",
    "cs": "já ty on ona ono my vy oni můj moje má tvůj tvoje jeho její náš naše jejich ten ta to ti ty a ale nebo tak "
    "pak potom tam tady teď kde kdy jak kdo co proč v na po ano ne je byl byla",
    "ru": "я ты он она оно мы вы они мой моя моё мои твой твоя его её наш наша их это этот эта эти тот та те и а но "
    "или потом затем там тут здесь теперь где когда как кто что почему в на по после да нет не",
    "tr": "ben sen o biz siz onlar benim senin onun bizim bu şu bunlar ve ama veya sonra orada burada şimdi nerede ne "
    "kim nasıl neden evet hayır bir",
    "el": "εγώ εσύ αυτός αυτή αυτό εμείς εσείς αυτοί αυτές ο η το οι τα τον την του της ένας μια μία ένα και κι αλλά "
    "ή μετά τότε εκεί εδώ τώρα πού πότε πώς ποιος ποια τι γιατί σε στο στη στην ναι όχι δεν μη θα να",
}  # fmt: skip


@cache
def known_abbreviations(language: str) -> frozenset[str]:
    """Lower-cased abbreviations of a language that do not end a sentence, without their full stops."""
    return frozenset(_ABBREVIATIONS.get(base_code(language), "").split())


@cache
def function_words(language: str) -> frozenset[str]:
    """Lower-cased words with which sentences in a language begin, and no name does."""
    return frozenset(_FUNCTION_WORDS.get(base_code(language), "").split())


def may_precede_ordinal(word: str, language: str) -> bool:
    """Whether a number with a full stop after this word is an ordinal."""
    words = _BEFORE_ORDINALS.get(base_code(language), "")
    return words is None or word.lower() in words.split()
